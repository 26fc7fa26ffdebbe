"""Sweeps on a cluster of Slurm: the job script, its submission, its tasks, and what they left."""
