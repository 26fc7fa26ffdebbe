"""The only place of the collectives: NCCL and Gloo through torch, MPI through mpi4py."""
