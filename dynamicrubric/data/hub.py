"""Streams a data set of the Hugging Face hub, or of a local folder in the hub's layout.

The one module outside `engines` and `training` that imports `datasets`, and only when it is called:
`sources` reaches it for names that begin with "hub:".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dynamicrubric.errors import UserError
from dynamicrubric.hub.client import check_endpoint, token

NECTAR: Final = "berkeley-nest/Nectar"
LICENSES: Final[Mapping[str, str]] = {
    NECTAR: "Apache-2.0, on condition that it is not used to compete with OpenAI (data card)"
}
"""What a data set's card says of rows that carry no licence of their own."""


def stream_rows(
    repository: str, revision: str | None, split: str = "train", config: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a split of a data set without keeping them.

    Args:
        repository: owner/name, or the path of a folder in the hub's layout.
        revision: a commit or a tag; None takes the newest, which may change under you.
        split: name of the split.
        config: name of the configuration; None is the default one.

    Raises:
        UserError: there is no such data set, or the hub cannot be reached.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    check_endpoint()
    own = token() or False  # False: no other token that is stored on this machine
    try:
        rows = load_dataset(
            repository, config, split=split, streaming=True, revision=revision, token=own
        )
        yield from rows
    except (DatasetsError, OSError, ValueError, HfHubHTTPError) as error:
        raise UserError(
            doing=f"streaming {repository} from the hub",
            got=" ".join(str(error).split())[:300],
            expected=f"a data set with a {split} split that can be reached",
            remedy="check the name and the network, or download it and name its folder",
        ) from error
