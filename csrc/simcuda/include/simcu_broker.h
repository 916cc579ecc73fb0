/* simcu_broker.h: one simulated host for the programs of several real processes.
 *
 * A broker holds a node with one virtual process for each client process. Clients load the client library, which has
 * the C ABI of cuda.h and carries every call to the broker; `SIMCU_NODE` in their environment says to which one. A
 * broker is part of the process that starts it, and leaves nothing behind when that ends: its socket has no file.
 *
 * Threads: any, until simcuBrokerDestroy. Everything here copes with clients that end at any moment.
 */
#ifndef ALLRANKS_SIMCUDA_SIMCU_BROKER_H_
#define ALLRANKS_SIMCUDA_SIMCU_BROKER_H_

#include "simcu.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct simcuBroker_st* simcuBroker;

typedef enum simcuBrokerMemory {
  SIMCU_BROKER_MEMORY_BY_KERNEL = 0, /* process_vm_readv, and over the socket where the kernel forbids that */
  SIMCU_BROKER_MEMORY_BY_SOCKET = 1
} simcuBrokerMemory;

typedef struct simcuBrokerOptions {
  size_t struct_bytes; /* sizeof(simcuBrokerOptions) */
  int host_memory;     /* simcuBrokerMemory: how copies reach the memory of clients */
  /* What goes wrong, "RANK:CALL:K=ACTION" separated by ";", or NULL: the K-th CALL (from 0; * for any) of each process
   * of RANK (* for all) fails with an error of cuda.h (by name or number), is delayed ("delay:MILLISECONDS"), or is
   * where the process ends by SIGKILL: "kill", before the call is carried out, or "kill-after", before it is answered.
   */
  const char* faults;
} simcuBrokerOptions;

/* Returns NULL and leaves a message in simcuLastError when the machine or the options are not valid, or there are no
 * sockets. `options` may be NULL. */
SIMCU_EXPORT simcuBroker simcuBrokerStart(const simcuMachine* machine, const simcuBrokerOptions* options);
/* The value of SIMCU_NODE for clients, which set SIMCU_RANK as well. Valid as long as the broker is. */
SIMCU_EXPORT const char* simcuBrokerAddress(simcuBroker broker);
/* A number that changes whenever a client comes, goes, calls or is answered. */
SIMCU_EXPORT uint64_t simcuBrokerProgress(simcuBroker broker);
/* 1 when no client's call is being carried out: each that there is waits, and has no time-out. */
SIMCU_EXPORT int simcuBrokerAtRest(simcuBroker broker);
/* Everything that is known of the clients so far, as a JSON text; valid until the calling thread asks again:
 * {"clients": [{"rank", "pid", "alive", "calls", "failed": [{"call", "code", "count", "query", "answer"}],
 *    "unsupported": [names], "ledger": [{"kind", "ordinal", "call", "references", "device", "bytes"}],
 *    "kernels": {name: launches}, "incidents": [as simcuIncidents],
 *    "waits": [{"thread", "call", "object", "waits_for": [ranks]}]}],
 *  "used": {"memory_bytes", "multicast_bytes"}, "refused": n, "faults": [{"fault", "met"}], "broken": text or
 *  null}
 * The ledger of a client that has ended is that of the moment before everything was given back. A failed call is a
 * `query` when it has no effect, and an `answer` when the code says how things are rather than what went wrong. */
SIMCU_EXPORT const char* simcuBrokerReport(simcuBroker broker);
/* Hangs up on every client, and waits until all is given back. The report can be asked for still. */
SIMCU_EXPORT void simcuBrokerStop(simcuBroker broker);
SIMCU_EXPORT void simcuBrokerDestroy(simcuBroker broker);

#ifdef __cplusplus
}
#endif
#endif
