"""Any device of torch.

* ``device``  arrays are tensors, and ops run as their torch forms
* ``forms``  torch forms bound to tensors: whose memory results lie in
* ``settings``  torch's own settings while a plan runs; afterwards they are the user's again
* ``host_copies``  a device's arrays as references on the host see them
* ``kernels``  the kernels of a GPU as torch's profiler saw them
"""
