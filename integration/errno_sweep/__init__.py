"""Each system call of a copy fails once with each plausible errno.

``python -m integration.errno_sweep --help`` lists the options.

One copy runs per case. A supervisor (:mod:`integration.harness.supervise`) fails one call of one
process, then the same command runs again without a fault. A case is good if

- the first run ends in bounded time, by itself, with a documented exit code and without a panic;
- no file under a final name is wrong, and exit code 0 means that the tree is identical;
- the second run ends with exit code 0, and the tree is identical;
- no file of dray remains; or a run reports the remaining ones, and ``dray log sweep`` removes them
  once they are old.

The cases come from counting the calls of a copy, so a new call of the program is in the next sweep.
"""
