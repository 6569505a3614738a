"""Speed beside the peers, workload by workload, in one process and one run.

python -m benchmarks [--only NAME] [--quick] [--write]
"""
