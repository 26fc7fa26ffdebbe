"""Settings that others reported, or this project measured, as good: where a search begins.

Seeds, not priors: each came from a few machines. Hazards are not in the list. Sources:
NCCL_MIN_NCHANNELS from 8 up and NCCL_PROTO=Simple are published for PCIe servers of eight GPUs
(rtx6kpro, OCI); 16 channels were the best safe setting of the recorded H200 landscape; a copied
NCCL_PROTO=LL costs large messages, which the guard sees.
"""

from __future__ import annotations

from collbench.job import Settings

KNOWN_GOOD: dict[str, tuple[Settings, ...]] = {
    "nccl": (
        {"NCCL_MIN_NCHANNELS": "8"},
        {"NCCL_MIN_NCHANNELS": "16"},
        {"NCCL_PROTO": "Simple"},
        {"NCCL_ALGO": "Ring"},
        {"NCCL_PROTO": "LL"},
        {"NCCL_MAX_NCHANNELS": "4"},
        {"NCCL_MAX_NCHANNELS": "2"},
        {"NCCL_BUFFSIZE": "1048576"},
        {"NCCL_BUFFSIZE": "8388608"},
        {"NCCL_CUMEM_ENABLE": "0"},
    ),
    "openmpi": (
        {"OMPI_MCA_btl_sm_eager_limit": "65536"},
        {
            "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
            "OMPI_MCA_coll_tuned_allreduce_algorithm": "1",
        },
        {
            "OMPI_MCA_btl_sm_eager_limit": "65536",
            "OMPI_MCA_btl_sm_max_send_size": "262144",
            "OMPI_MCA_smsc": "^cma",
        },
        {"OMPI_MCA_btl_sm_eager_limit": "65536", "OMPI_MCA_smsc": "^cma"},
    ),
    "mpich": (
        {
            "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
            "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_doubling",
        },
        {
            "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
            "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": "recursive_multiplying",
        },
    ),
}
"""Library -> settings, most promising first."""
