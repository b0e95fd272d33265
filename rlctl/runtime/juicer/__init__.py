"""Data-Juicer's operators, in a service of their own: its packages share no environment with rlctl's.

client    sends rows to a service that speaks Trinity-RFT's protocol, and takes back what its operators leave
server    such a service, a program for the environment of py-data-juicer; it imports nothing of rlctl
"""
