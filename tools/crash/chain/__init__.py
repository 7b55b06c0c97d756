"""Does a chain of consume, transform and produce keep each record exactly once, whoever is killed?"""
