"""Power loss at any moment of a copy, on a real file system.

``python -m integration.crash_replay --help`` lists the options.

The recorder runs a copy onto ext4 or XFS on a block device of this process
(:mod:`integration.harness.fuse_block`) and keeps each write and each cache flush. The replayer then
builds what the disk may hold after a power loss at a point of the recording: all writes before the
last flush, and of the later ones any subset, in any order, the last of them torn. It mounts the
image, so the file system replays its journal, and checks from outside:

- what stands under a final name is a whole version of the file, the older or the new one;
- after the copy has ended with exit code 0, all of it is there;
- the same command ends with exit code 0, the tree is identical, and no partial data is left;
- it sends at most what the first copy had not yet called durable at that point.
"""
