"""loopmesh under test: allranks check --backend loopmesh_backend:LoopmeshBackend."""

import loopmesh

from allranks.conformance.backend import RankContext
from allranks.conformance.narrowing import Narrowing


class LoopmeshBackend:
    """What the suite opens. The mesh has the methods of a communicator, so nothing has to be translated."""

    name = "loopmesh"
    memory_spaces = ("host",)
    mesh: type[loopmesh.Mesh] = loopmesh.Mesh
    narrowings = (
        Narrowing(
            requirement="COLL-1",
            reason="NumPy, which reduces, has no bfloat16",
            source="loopmesh.Mesh: its error names the element types that there are",
            dtypes=("bfloat16",),
        ),
    )

    def capabilities(self, context: RankContext) -> frozenset[str]:
        """Say what there is."""
        return frozenset({"channels", "all_gather", "all_reduce"})

    def open(self, context: RankContext) -> loopmesh.Mesh:
        """Make one rank's mesh; every rank does, and tells the others where it listens."""
        with loopmesh.listen() as listener:
            names = context.exchange(listener.getsockname(), "names of the listeners")
            return self.mesh(context.rank, listener, names, context.timeout_s)
