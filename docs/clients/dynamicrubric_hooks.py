"""Reward hooks of verl, OpenRLHF and verifiers (prime-rl) that ask a `dynamicrubric serve-reward`.

Copy this one file to the trainer's machine: it needs Python 3.10 and nothing else (OpenRLHF's hook
returns torch tensors). Three environment variables set it up:

    DYNAMICRUBRIC_URL         where the server is; http://127.0.0.1:8100 by default
    DYNAMICRUBRIC_API_KEY     its key, if it has one
    DYNAMICRUBRIC_GROUP_SIZE  rollouts of a prompt: batches that cut a group are refused then, and
                              `compute_score`, which sees one rollout at a time, needs it

These trainers have no reward for "unscored". What the server leaves unscored gets the mean of its
group, which is no advantage and no disadvantage to anybody; of a group without one score an error
is raised.
"""

import asyncio
import http.client
import json
import os
import time
import urllib.error
import urllib.request

ATTEMPTS = 60
"""Calls for one group, while the server is busy (429) or cannot be reached."""
MAX_WAIT_SECONDS = 30.0
GROUP_SECONDS = 1800.0
"""How long `compute_score` waits for the rest of a group."""


def score_group(prompt, responses):
    """Return the server's document of one response set; its `scores` may hold None."""
    url = os.environ.get("DYNAMICRUBRIC_URL", "http://127.0.0.1:8100")
    headers = {"Content-Type": "application/json"}
    if os.environ.get("DYNAMICRUBRIC_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["DYNAMICRUBRIC_API_KEY"]
    body = json.dumps({"prompt": prompt, "responses": list(responses)}).encode()
    request = urllib.request.Request(url + "/v1/score", body, headers)
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(request, timeout=900) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503):
                raise RuntimeError(f"{error.code}: {error.read().decode()[:500]}") from None
            wait = float(error.headers.get("Retry-After") or 1.0)
        except (OSError, http.client.HTTPException):  # it went away, before or in its answer
            wait = 2.0 ** min(attempt, 10)
        time.sleep(min(wait, MAX_WAIT_SECONDS))
    raise RuntimeError(f"no answer from {url} after {ATTEMPTS} attempts")


def rewards_of(prompt, responses):
    """Return a number for each response of a group, the group's mean for what is unscored."""
    document = score_group(prompt, responses)
    scored = [score for score in document["scores"] if score is not None]
    if not scored:
        raise RuntimeError(f"no response of the group has a score: {document['reasons']}")
    mean = sum(scored) / len(scored)
    return [mean if score is None else score for score in document["scores"]]


def rewards_of_batch(prompts, responses):
    """Return a number for each row of a batch; the rows of one prompt are a group."""
    groups = {}
    for place, prompt in enumerate(prompts):
        groups.setdefault(prompt, []).append(place)
    size = int(os.environ.get("DYNAMICRUBRIC_GROUP_SIZE") or 1)
    cut = [len(places) for places in groups.values() if len(places) % size]
    if cut:
        raise RuntimeError(f"a batch with {cut[0]} of {size} rollouts of a prompt: a group is cut")
    rewards = [0.0] * len(prompts)
    for prompt, places in groups.items():
        found = rewards_of(prompt, [responses[place] for place in places])
        for place, reward in zip(places, found):
            rewards[place] = reward
    return rewards


# verl, a whole batch in one call (reward manager `batch`).
# Each row's extra_info has the prompt as text: {"prompt": ...}.
def compute_score_batch(data_sources, solution_strs, ground_truths, extra_infos, **kwargs):
    return rewards_of_batch([info["prompt"] for info in extra_infos], list(solution_strs))


# verl, one rollout a call (reward loop, one worker): waits until its group is complete.
_waiting = {}
_settling = set()


async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    size = int(os.environ["DYNAMICRUBRIC_GROUP_SIZE"])
    prompt = extra_info["prompt"]
    key = (extra_info.get("index"), prompt)
    rewards = asyncio.get_running_loop().create_future()
    group = _waiting.setdefault(key, [])
    group.append((solution_str, rewards))
    if len(group) == size:
        del _waiting[key]
        task = asyncio.ensure_future(_settle(prompt, group))  # whoever of the group is cancelled
        _settling.add(task)
        task.add_done_callback(_settling.discard)
    try:
        return await asyncio.wait_for(rewards, GROUP_SECONDS)
    finally:  # who gives up must not be scored among the rollouts of a later step
        if _waiting.get(key) is group:
            group.remove((solution_str, rewards))
            if not group:
                del _waiting[key]


async def _settle(prompt, group):
    try:
        texts = [text for text, _ in group]
        found = await asyncio.to_thread(rewards_of, prompt, texts)
    except Exception as error:
        for _, reward in group:
            if not reward.done():
                reward.set_exception(error)
    else:
        for (_, reward), value in zip(group, found):
            if not reward.done():
                reward.set_result(value)


# OpenRLHF: --remote_rm_url path/to/dynamicrubric_hooks.py
def reward_func(queries, prompts, labels, **kwargs):
    import torch

    responses = [query[len(prompt) :] for query, prompt in zip(queries, prompts)]
    rewards = torch.tensor(rewards_of_batch(list(prompts), responses))
    return {"rewards": rewards, "scores": rewards, "extra_logs": {"rubric_score": rewards}}


# verifiers and prime-rl: vf.Rubric(funcs=[rubric_scores]). The plural names make it a group reward.
async def rubric_scores(prompts, completions, **kwargs):
    question = _conversation(prompts[0])
    responses = [_said(completion) for completion in completions]
    return await asyncio.to_thread(rewards_of, question, responses)


def _conversation(messages):
    """Return a prompt as `GroupRubricReward` reads it: one message, or all with their speakers."""
    if isinstance(messages, str):
        return messages
    texts = [(message["role"], _content(message)) for message in messages]
    if len(texts) == 1 and texts[0][0] == "user":
        return texts[0][1] or ""
    names = {"user": "Human", "assistant": "Assistant", "system": "System"}
    return "\n\n".join(
        f"{names.get(role, role)}: {text}" for role, text in texts if text is not None
    )


def _said(messages):
    """Return what the assistant said last; None if that is no text, such as a call of a tool."""
    if isinstance(messages, str):
        return messages
    said = [message for message in messages if message["role"] == "assistant"]
    return _content(said[-1]) if said else None


def _content(message):
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content
    texts = [block["text"] for block in content if isinstance(block.get("text"), str)]
    return "\n".join(texts) if texts else None
