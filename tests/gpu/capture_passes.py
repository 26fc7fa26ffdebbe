"""A small server: rank r captures decode graphs of several batch sizes, as servers do.

Started by torchrun. Every pass is 2 x LAYERS + 1 all_reduces and one all_gather of the logits; for
every batch size two warm-up passes and the capture, largest first. Before it another communicator
is used, after it a prefill runs.
"""

import os

import torch
import torch.distributed as dist

LAYERS, HIDDEN, VOCAB = 4, 512, 4096
BATCHES = (8, 4, 2, 1)


def main() -> None:
    rank, nranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    group = dist.new_group(list(range(nranks)))
    device = torch.device("cuda")
    dist.all_reduce(torch.ones(1, device=device))  # the other communicator

    def forward(tokens: int, logits: int) -> None:
        hidden = torch.ones(tokens, HIDDEN, dtype=torch.bfloat16, device=device)
        for _ in range(2 * LAYERS + 1):
            dist.all_reduce(hidden, group=group)
        share = torch.ones(logits * VOCAB // nranks, dtype=torch.bfloat16, device=device)
        whole = torch.empty(logits * VOCAB, dtype=torch.bfloat16, device=device)
        dist.all_gather_into_tensor(whole, share, group=group)

    stream = torch.cuda.Stream()
    graphs = []
    with torch.cuda.stream(stream):
        for batch in BATCHES:
            for _ in range(2):
                forward(batch, batch)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                forward(batch, batch)
            graph.replay()
            graphs.append(graph)
        forward(300, 1)  # prefill
    torch.cuda.synchronize()
    if rank == 0:
        print("captured", flush=True)
    os._exit(0)


main()
