"""A communicator between processes of one machine, over Unix sockets: small, and for host memory."""

from loopmesh.mesh import Channels, Mesh, listen

__all__ = ["Channels", "Mesh", "listen"]
