"""What a broker's owner wants to know of the traffic: how much, how even, how late, how long yet."""
