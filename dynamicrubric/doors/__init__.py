"""Three doors to one evaluator: a reward function for TRL, a server, and files on the command line.

All of them hand response sets to an `evaluators.base.Evaluator` and give back the same document
(`documents.ScoreDocument`): what one door says of a set, the others say too.
"""
