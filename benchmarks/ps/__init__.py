"""The parameter server beside PaddlePaddle 2.6.2's, on the same ids in the same run."""
