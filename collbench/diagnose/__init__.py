"""Judging what was read: findings of one file, and the ranked causes of a slower step.

The readers give facts; here is what they mean. A rule says nothing that its evidence does not
show: what cannot be decided is `env.unknown` or `noise.too_noisy`, never a guess.
"""
