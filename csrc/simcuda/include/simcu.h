/* simcu.h: what the simulated CUDA driver offers beyond cuda.h.
 *
 * The simulated driver exports the C ABI of cuda.h for N virtual GPUs. This header is its second face: nodes
 * (simulated hosts), virtual processes (one a rank), the turnstile that runs exactly one task at a time, the
 * oracle that says which bytes an address reaches, the ledger of every handle alive, and injected faults.
 * Every name here has the prefix `simcu`; finding `simcuVersion` in a loaded library is how a client knows that
 * the library is this one and not the real driver.
 *
 * Threads: functions that name a node or a process may be called from any thread while no run is in progress,
 * and during a run from the task that holds the turn (or, for simcuRunWait, from outside).
 * Units: sizes and offsets in bytes, times in microseconds of the node's own clock.
 */
#ifndef ALLRANKS_SIMCUDA_SIMCU_H_
#define ALLRANKS_SIMCUDA_SIMCU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMCU_EXPORT __attribute__((visibility("default")))

/* Version of this interface; also the mark by which a client recognises the simulated driver. */
SIMCU_EXPORT unsigned simcuVersion(void);

/* For libraries on top of the driver: a function of theirs with that name was called, and is not simulated. It is said
 * as of a driver function. CUDA_ERROR_NOT_SUPPORTED, or why the driver cannot be asked anything. */
SIMCU_EXPORT int simcuUnsupported(const char* name);

/* ---- machines and nodes -------------------------------------------------------------------------------- */

/* When an object's size is charged against the multicast capacity of the devices. An assumption (see
 * docs/multicast.md), hence a switch. */
typedef enum simcuMulticastCharge {
  SIMCU_CHARGE_AT_CREATE = 0,     /* the object's rounded size, on every device of the node's fabric, at create */
  SIMCU_CHARGE_AT_ADD_DEVICE = 1, /* the object's rounded size, on each device when it is added */
  SIMCU_CHARGE_AT_BIND = 2        /* the bound bytes, on each device when memory is bound */
} simcuMulticastCharge;

/* What becomes of a binding whose memory was freed before it was unbound. An assumption, hence a switch. */
typedef enum simcuBindingOnFree {
  SIMCU_BINDING_KEEPS_MEMORY = 0, /* the binding holds a reference; unbind succeeds */
  SIMCU_UNBIND_REPORTS_ERROR = 1  /* unbind afterwards returns CUDA_ERROR_INVALID_VALUE (pytorch/pytorch#163750) */
} simcuBindingOnFree;

typedef struct simcuMachine {
  size_t struct_bytes; /* sizeof(simcuMachine) of the caller */
  char name[64];
  int device_count;
  int compute_capability_major;
  int compute_capability_minor;
  int multiprocessor_count;
  int blocks_per_multiprocessor; /* how many blocks are resident at once on one multiprocessor */
  int lanes;                     /* lanes (threads) that one host-compiled block runs: 1, 4 or 32 */
  int multicast_supported;
  int fabric_handle_supported;
  int fabric_handle_permitted;
  int peer_access;       /* every pair of devices, or none */
  uint64_t memory_bytes; /* what cuMemGetInfo calls total */
  uint64_t allocation_granularity_bytes;
  uint64_t multicast_granularity_minimum_bytes;
  uint64_t multicast_granularity_recommended_bytes;
  uint64_t multicast_capacity_bytes;        /* per device */
  int multicast_charge;                     /* simcuMulticastCharge */
  uint64_t multicast_charge_rounding_bytes; /* sizes are rounded up to this before they are charged */
  int binding_on_free;                      /* simcuBindingOnFree */
  int driver_version;                       /* as cuDriverGetVersion: 13000 */
} simcuMachine;

typedef struct simcuNode_st* simcuNode;
typedef struct simcuProcess_st* simcuProcess;

/* A new simulated host. Returns NULL and leaves a message in simcuLastError when a field is out of range. */
SIMCU_EXPORT simcuNode simcuNodeCreate(const simcuMachine* machine);
/* Gives everything back; every process of the node must have been destroyed or is destroyed now. */
SIMCU_EXPORT void simcuNodeDestroy(simcuNode node);
/* What the last failing simcu call of this thread objected to. */
SIMCU_EXPORT const char* simcuLastError(void);

/* ---- virtual processes --------------------------------------------------------------------------------- */

typedef enum simcuPlacementRule {
  SIMCU_PLACE_LOW = 0,        /* first fit from the bottom of the range; a freed address is used again at once */
  SIMCU_PLACE_HIGH = 1,       /* first fit from the top */
  SIMCU_PLACE_NEVER_REUSE = 2 /* always above everything handed out before */
} simcuPlacementRule;

typedef struct simcuPlacement {
  size_t struct_bytes;
  int rule;                   /* simcuPlacementRule, the default of this process; changed by simcuProcessPlace */
  uint64_t base_offset_bytes; /* shifts the whole range, so that equal histories get unequal addresses */
} simcuPlacement;

/* A virtual process of a node: its own address space, handle values, BUFFER_ID counter, contexts, descriptors.
 * `rank` is only a name for reports. */
SIMCU_EXPORT simcuProcess simcuProcessCreate(simcuNode node, int rank, const simcuPlacement* placement);
/* Ends a process as its death would: every handle it owns is given back without its help. */
SIMCU_EXPORT void simcuProcessDestroy(simcuProcess process);
/* The placement rule of the address ranges that this process reserves from now on. */
SIMCU_EXPORT void simcuProcessPlace(simcuProcess process, int rule);
/* The next address range that the process takes starts here if that is free (0: no wish). */
SIMCU_EXPORT void simcuProcessWish(simcuProcess process, uint64_t address);

/* Binds the calling thread to a process outside of a run (set-up, tests). NULL unbinds. Inside a run a thread is
 * bound by simcuTaskEnter. A thread that is bound to nothing uses the default process: one node, built from the
 * environment variables SIMCU_MACHINE and SIMCU_DEVICES at its first driver call. */
SIMCU_EXPORT void simcuBind(simcuProcess process);

/* ---- the turnstile: runs, tasks, waiting ---------------------------------------------------------------- */

/* A realised or wanted deviation: at the decision with this number take the runnable task with this index
 * (0: go on with the current one, or the first runnable one when the current one waits). */
typedef struct simcuDeviation {
  uint64_t decision;
  uint32_t choice;
} simcuDeviation;

/* Starts a deterministic run: it begins when `task_count` threads have entered. */
SIMCU_EXPORT int simcuRunBegin(simcuNode node, int task_count, const simcuDeviation* schedule, size_t count);
/* Asks `choose(state, decision, runnable)` at every decision instead of a list; it answers 0 .. runnable - 1. */
SIMCU_EXPORT int simcuRunBeginAsking(simcuNode node, int task_count,
                                     uint32_t (*choose)(void* state, uint64_t decision, uint32_t runnable),
                                     void* state);
/* The calling thread becomes a task of the run, in the process, and returns when it has the turn. `order` gives
 * the task's place among those that start together (0 first). */
SIMCU_EXPORT int simcuTaskEnter(simcuProcess process, int order);
/* The calling task is over; the turn goes on. */
SIMCU_EXPORT void simcuTaskLeave(void);
/* Blocks the calling (outside) thread until every task has left, or until nothing happened in the turnstile for
 * `quiet_timeout_ms` of real time. Returns 0 when the run is over, 1 when a task holds the turn and keeps quiet. */
SIMCU_EXPORT int simcuRunWait(simcuNode node, uint64_t quiet_timeout_ms);
/* What a thread does before it blocks in the library, and after: an interpreter gives up its lock meanwhile, which
 * the tasks that it waits for may need. `after` gets what `before` gave, unless that was NULL. Set once, before other
 * threads call in. Any driver call may block, those that destructors make included. */
typedef void* (*simcuBeforeBlocking)(void); /* NOLINT(modernize-redundant-void-arg): C */
typedef void (*simcuAfterBlocking)(void* state);
SIMCU_EXPORT void simcuBlockingHooks(simcuBeforeBlocking before, simcuAfterBlocking after);
/* A schedule decision: gives other runnable tasks the chance to go first. */
SIMCU_EXPORT void simcuYield(void);
/* The node's clock; it moves only when nothing can run and a deadline is pending. */
SIMCU_EXPORT uint64_t simcuNow(void);

typedef enum simcuWaitResult {
  SIMCU_WAIT_READY = 0,
  SIMCU_WAIT_TIMEOUT = 1, /* the deadline came first: nothing could run, and time jumped */
  SIMCU_WAIT_STALLED = 2, /* nothing can ever run: the task is being unwound */
  SIMCU_WAIT_NO_RUN = 3   /* the calling thread is no task, and the condition is false */
} simcuWaitResult;

#define SIMCU_NO_TIMEOUT UINT64_MAX

typedef struct simcuWaitSpec {
  size_t struct_bytes;
  int (*ready)(void* state); /* no side effects; called with the turn held, by any thread */
  size_t (*waits_for)(void* state, int* ranks, size_t capacity); /* ranks still missing; may be NULL */
  void* state;
  const void* key;     /* simcuNotify(key) makes `ready` be asked again */
  const char* call;    /* for reports: "bootstrap.all_gather"; copied */
  const char* object;  /* for reports: "connect #3"; copied */
  uint64_t timeout_us; /* SIMCU_NO_TIMEOUT: none */
} simcuWaitSpec;

SIMCU_EXPORT int simcuWait(const simcuWaitSpec* spec);
SIMCU_EXPORT void simcuNotify(const void* key);

/* After a run: 1 if it stalled (nothing could run and no deadline was pending). */
SIMCU_EXPORT int simcuRunStalled(simcuNode node);
/* The stall, and every jump of the clock to a deadline, as a JSON text:
 * {"stalled": bool, "moments": [{"kind": "stall"|"deadline", "clock_us": n, "decision": n,
 *   "waits": [{"task": name, "rank": r, "step": s, "operation": text, "call": text, "object": text,
 *              "waits_for": [ranks]}],
 *   "others": [{"task": name, "rank": r, "step": s, "operation": text, "state": "left"|"runnable"}]}]}
 * Returns the length without the terminating zero; writes at most `capacity` bytes. */
SIMCU_EXPORT size_t simcuRunReport(simcuNode node, char* text, size_t capacity);
/* Deviations that the run realised (choices other than 0); returns how many there are. */
SIMCU_EXPORT size_t simcuRunDeviations(simcuNode node, simcuDeviation* deviations, size_t capacity);
/* Decisions asked in the run so far, and nanoseconds of real time from the last task that could run to the stall
 * verdict (0: no stall). */
SIMCU_EXPORT uint64_t simcuRunDecisions(simcuNode node);
SIMCU_EXPORT uint64_t simcuRunVerdictNanoseconds(simcuNode node);

/* ---- labels, calls, incidents --------------------------------------------------------------------------- */

/* What the calling task is doing from now on: the step's number and its operation. Work that it enqueues on
 * streams carries the label it had when it was enqueued. `owner` 0: the user's own calls; 1: the communicator's. */
SIMCU_EXPORT void simcuLabel(uint32_t step, const char* operation, int owner);

typedef struct simcuCall {
  uint32_t step;
  uint16_t call;  /* index for simcuCallName */
  uint16_t owner; /* as in simcuLabel */
  int32_t result; /* CUresult */
} simcuCall;

/* Driver calls that the process made, in order (queries without effect, such as cuGetErrorName, are left out).
 * Returns how many there are from `first` on; copies at most `capacity`. */
SIMCU_EXPORT size_t simcuCalls(simcuProcess process, size_t first, simcuCall* calls, size_t capacity);
SIMCU_EXPORT const char* simcuCallName(uint16_t call); /* NULL past the last one */

/* Things that hardware tolerates, or leaves undefined, although they are wrong; and sticky errors with their
 * place. As a JSON array: [{"rank": r, "step": s, "owner": o, "kind": text, "call": text, "detail": text,
 * "assumption": text or null}]. Kinds: over_release, unmap_of_nothing, unsupported, illegal_address,
 * multicast_read, multicast_unbound, freed_while_bound, freed_while_open, use_after_free, swallowed. */
SIMCU_EXPORT size_t simcuIncidents(simcuNode node, char* text, size_t capacity);

/* ---- ledger and oracle ---------------------------------------------------------------------------------- */

typedef enum simcuLedgerKind {
  SIMCU_LEDGER_ALLOCATION = 0,  /* physical memory of cuMemCreate: a handle value of a process, with references */
  SIMCU_LEDGER_PLAIN = 1,       /* cuMemAlloc, cuMemAllocAsync */
  SIMCU_LEDGER_RESERVATION = 2, /* cuMemAddressReserve */
  SIMCU_LEDGER_MAPPING = 3,     /* cuMemMap */
  SIMCU_LEDGER_MULTICAST = 4,   /* multicast object: a handle value of a process, with references */
  SIMCU_LEDGER_BINDING = 5,     /* cuMulticastBindMem, cuMulticastBindAddr */
  SIMCU_LEDGER_DESCRIPTOR = 6,  /* exported file descriptor */
  SIMCU_LEDGER_STREAM = 7,
  SIMCU_LEDGER_EVENT = 8,
  SIMCU_LEDGER_MODULE = 9,
  SIMCU_LEDGER_CONTEXT = 10, /* primary context, references = retains */
  SIMCU_LEDGER_HOST = 11,    /* page-locked host memory */
  SIMCU_LEDGER_POOL = 12,    /* memory pool: made, or imported */
  SIMCU_LEDGER_IMPORTED = 13 /* memory of another process: cuIpcOpenMemHandle, cuMemPoolImportPointer */
} simcuLedgerKind;

typedef struct simcuLedgerEntry {
  int32_t kind;        /* simcuLedgerKind */
  int32_t rank;        /* of the process that owns it */
  uint32_t ordinal;    /* of that kind in that process, from 0 in order of creation */
  uint32_t step;       /* label of the call that made it */
  uint16_t call;       /* that call, for simcuCallName */
  uint16_t owner;      /* label's owner */
  uint32_t references; /* how many releases it still needs (0: only kept alive by mappings or bindings) */
  int32_t device;      /* -1: none */
  uint64_t bytes;
} simcuLedgerEntry;

/* Everything alive, ordered by (rank, kind, ordinal). */
SIMCU_EXPORT size_t simcuLedger(simcuNode node, simcuLedgerEntry* entries, size_t capacity);

/* One piece of the bytes behind an address range. */
typedef struct simcuPiece {
  uint64_t from_bytes; /* offset into the range asked about */
  uint64_t size_bytes;
  int32_t device;            /* -1: nothing is there */
  int32_t owner_rank;        /* process that created the allocation */
  uint32_t allocation;       /* its ordinal: unique in the node, in order of creation */
  int32_t through_multicast; /* 1: reached through a multicast object */
  uint64_t offset_bytes;     /* into the allocation */
} simcuPiece;

/* Which bytes [address, address + size) of the process reaches. For multicast one piece a device and bound
 * stretch; a stretch that some device has not bound is a piece with device -1. Not a driver call, no effect. */
SIMCU_EXPORT size_t simcuResolve(simcuProcess process, uint64_t address, uint64_t size, simcuPiece* pieces,
                                 size_t capacity);

/* NULL when the node's books agree with each other, else which rule is broken; valid until the next call. */
SIMCU_EXPORT const char* simcuCheckInvariants(simcuNode node);

/* Device memory and multicast capacity in use, in bytes, per device. */
SIMCU_EXPORT uint64_t simcuMemoryUsed(simcuNode node, int device);
SIMCU_EXPORT uint64_t simcuMulticastUsed(simcuNode node, int device);

/* What a node has in use, all devices and processes together. */
typedef struct simcuUsage {
  size_t struct_bytes; /* sizeof(simcuUsage) */
  uint64_t memory_bytes;
  uint64_t multicast_bytes;
  uint64_t handles; /* entries of the ledger */
} simcuUsage;

SIMCU_EXPORT void simcuUsed(simcuNode node, simcuUsage* usage);

/* What was written, coalesced: every store, copy and memset that reached device memory since the last call of
 * simcuWritesClear, in order. Recording costs time and is off until switched on. */
typedef struct simcuWrite {
  uint32_t step;
  int32_t rank; /* the writer's */
  uint32_t allocation;
  int32_t device;
  uint64_t offset_bytes;
  uint64_t size_bytes;
} simcuWrite;
SIMCU_EXPORT void simcuWritesRecord(simcuNode node, int on);
SIMCU_EXPORT size_t simcuWrites(simcuNode node, simcuWrite* writes, size_t capacity);
SIMCU_EXPORT void simcuWritesClear(simcuNode node);

/* Host access for tests and reports; not driver calls. Returns 0, or 1 if some byte is not reachable. Access
 * through a multicast address is refused (1). */
SIMCU_EXPORT int simcuPeek(simcuProcess process, uint64_t address, void* destination, uint64_t size);
SIMCU_EXPORT int simcuPoke(simcuProcess process, uint64_t address, const void* source, uint64_t size);
/* The host memory behind [address, address + size) if it is one contiguous stretch of one device, else NULL.
 * Valid until the memory is freed. */
SIMCU_EXPORT void* simcuHostView(simcuProcess process, uint64_t address, uint64_t size);

/* ---- faults --------------------------------------------------------------------------------------------- */

/* The k-th call (from 0) of `call` ("cuMemMap") by the process, counted from now, returns `code` and does
 * nothing. Several may be set. Returns 1 for an unknown name. */
SIMCU_EXPORT int simcuFault(simcuProcess process, const char* call, uint64_t k, int code);
SIMCU_EXPORT void simcuFaultsClear(simcuProcess process);

/* ---- host-compiled kernels ------------------------------------------------------------------------------ */

/* A module image for cuModuleLoadData that holds functions of this host instead of machine code for a GPU. */
#define SIMCU_MODULE_MAGIC 0x454c55444f4d4953ull /* "SIMODULE" */

typedef struct simcuBlock simcuBlock;
typedef void (*simcuKernelEntry)(simcuBlock* block, const void* const* parameters);

typedef struct simcuKernel {
  const char* name;
  simcuKernelEntry entry;
  const size_t* parameter_bytes; /* sizes of the launch parameters, which are copied at launch */
  size_t parameter_count;
} simcuKernel;

typedef struct simcuModuleImage {
  uint64_t magic;   /* SIMCU_MODULE_MAGIC */
  uint32_t version; /* 1 */
  uint32_t kernel_count;
  const simcuKernel* kernels;
} simcuModuleImage;

/* A stretch of memory that one translation covers; begin == end: none. */
typedef struct simcuWindow {
  uint64_t begin;      /* first address */
  uint64_t end;        /* one past the last */
  unsigned char* host; /* host memory behind `begin` */
  uint64_t generation; /* valid while equal to *simcuBlock.generation */
} simcuWindow;

/* What a running lane of a block sees. The driver fills it; device code reads it through device/platform.h. */
struct simcuBlock {
  uint32_t block_index, block_count; /* one-dimensional grids only */
  uint32_t lane, lane_count;
  const uint64_t* generation; /* of the process's translations */
  simcuWindow window[2];      /* the last two translations used for plain loads and stores */
  int recording;              /* 1: writes are recorded, so stores go through the driver */
  /* Finds the memory behind [address, address + size); fails (unwinds the block, and the context's error becomes
   * sticky) when it is not accessible. Not for multicast addresses. */
  void* (*translate)(simcuBlock*, uint64_t address, uint64_t size, int for_writing);
  /* Plain stores and copies that need more than a pointer: recorded, watched, or multicast. */
  void (*store)(simcuBlock*, uint64_t address, const void* source, uint64_t size);
  void (*copy)(simcuBlock*, uint64_t destination, uint64_t source, uint64_t size);
  /* 32- and 64-bit words, naturally aligned, for signals: sequentially consistent on the host. A store or add
   * wakes the blocks that spin on the word. `size` is 4 or 8. */
  uint64_t (*load_word)(simcuBlock*, uint64_t address, int size);
  void (*store_word)(simcuBlock*, uint64_t address, uint64_t value, int size);
  uint64_t (*add_word)(simcuBlock*, uint64_t address, uint64_t value, int size);
  /* Waits until done(load_word(address), argument) is true. Returns 0, or 1 when `timeout_us` came first. */
  int (*spin_until)(simcuBlock*, uint64_t address, int size, int (*done)(uint64_t seen, uint64_t argument),
                    uint64_t argument, uint64_t timeout_us, const char* what);
  /* Waits for the other lanes of this block. */
  void (*sync)(simcuBlock*);
  /* multimem.ld_reduce: `type` and `operation` as simcuMultimem*; `count` elements of natural size, at most 16
   * bytes; fails the block for a pair that the PTX table does not have. */
  void (*multimem_load_reduce)(simcuBlock*, uint64_t address, void* destination, int type, int operation, int count);
  /* multimem.st and multimem.red of 4, 8 or 16 bytes. */
  void (*multimem_store)(simcuBlock*, uint64_t address, const void* source, uint64_t size);
  void (*multimem_reduce)(simcuBlock*, uint64_t address, const void* source, int type, int operation, int count);
  void* detail; /* the driver's own */
};

typedef enum simcuMultimemType {
  SIMCU_TYPE_U32 = 0,
  SIMCU_TYPE_S32 = 1,
  SIMCU_TYPE_U64 = 2,
  SIMCU_TYPE_S64 = 3,
  SIMCU_TYPE_F16 = 4,
  SIMCU_TYPE_BF16 = 5,
  SIMCU_TYPE_F32 = 6,
  SIMCU_TYPE_F64 = 7,
  SIMCU_TYPE_B32 = 8,
  SIMCU_TYPE_B64 = 9,
  SIMCU_TYPE_E4M3 = 10,
  SIMCU_TYPE_E5M2 = 11
} simcuMultimemType;
typedef enum simcuMultimemOperation {
  SIMCU_OP_ADD = 0,
  SIMCU_OP_MIN = 1,
  SIMCU_OP_MAX = 2,
  SIMCU_OP_AND = 3,
  SIMCU_OP_OR = 4,
  SIMCU_OP_XOR = 5
} simcuMultimemOperation;

#ifdef __cplusplus
}
#endif
#endif
