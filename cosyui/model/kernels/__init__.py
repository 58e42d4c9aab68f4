"""Triton kernels of the networks. Nothing else imports Triton, and these modules only when tensors are on CUDA."""
