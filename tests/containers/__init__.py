"""The contract on servers from images, by testcontainers: for those that no package brings.

PYSLOT_IMAGES="redis:8.0 valkey/valkey:8.1 ..." names the images; anyone with a registry can add more.
"""
