"""What runs under PaddlePaddle 2.6.2, in the way of PaddleRec's trainer for servers."""
