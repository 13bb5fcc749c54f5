#!/bin/sh
# Any program can be a rank; this one is a shell script.
#   paddock launch --nproc-per-node 2 examples/hello.sh [word]
echo "rank ${RANK:?start me with paddock launch} of ${WORLD_SIZE}: hello ${1:-world}," \
  "attempt ${PADDOCK_ATTEMPT} of job ${PADDOCK_JOB_ID}"
