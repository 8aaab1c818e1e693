"""Untrusted code in another process: the policy, the processes under it, and the memory shared with them."""
