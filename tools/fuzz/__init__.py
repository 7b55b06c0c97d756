"""Can broken frames hurt a live broker?"""
