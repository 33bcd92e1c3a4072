"""`shardwise.example_libraries`: small libraries of layers (`stax`) and optimizers (`optimizers`), as tutorials use them."""
