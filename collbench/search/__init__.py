"""The search: A/A, ask and tell, shortlist, ablation, confirmation, gate, proof.

`collbench.search.sweeps` has the two functions a sweep calls: `options` and `run_sweep`; the
protocol of one study is `collbench.search.protocol.run`. See docs/search.md.
"""
