"""`runnel alert …`: alerts of a cluster, silences, rules, and the evaluator."""
