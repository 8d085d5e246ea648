"""Each system call of a copy fails once with each plausible errno.

``python -m integration.errno_sweep --help`` lists the options.

A case runs the same copy twice. In the first run, a supervisor
(:mod:`integration.harness.supervise`) lets one system call of one process fail. The second run has
no fault. A case succeeds if

- the first run ends by itself before a time limit, with a documented exit code and without a panic;
- after the first run, no file under a final name has wrong content, and if the exit code is 0, the
  copied tree is identical to the source;
- the second run ends with exit code 0, and the copied tree is identical to the source;
- no temporary file of dray remains, or one of the runs reports each remaining file, and
  ``dray log sweep`` removes these files once they are old.

The sweep counts the calls of a copy without a fault, and derives the cases from them. So it also
covers calls that are new in the program.
"""
