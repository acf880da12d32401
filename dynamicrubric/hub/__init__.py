"""The Hugging Face hub: what is pushed to it, with cards filled from the run, and loaded from it.

`huggingface_hub` does the work and is imported only when something is asked for: importing these
modules touches no network. Names are read in `names`; the client, its token and its errors are in
`client`; `fetch` gets a checkpoint. What is pushed comes from `trained` (policies, generators) and
`datasets` (prepared data), its cards from `modelcard` and `datacard`, and `push` sends it.
"""
