"""What is the longest pause of the event loop that one legal request can cause?"""
