"""`bench`: time collectives and the step, print the table, write a run record.

``torchrun -m collbench.bench`` and ``collbench bench`` are equal; `collbench.bench.launches` works
with anything that can start launches.
"""
