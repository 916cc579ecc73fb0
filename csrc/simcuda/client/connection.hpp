// The calling thread's connection to the broker, made at its first driver call and closed when the thread ends.
//
// A child of `fork` has none and gets none: its driver is not initialised, as measured on hardware. The connections
// that it inherited are closed in it at once, or the parent's death would go unnoticed while the child lives. Nothing
// here is destroyed when the program ends, because destructors of other libraries may still call the driver.
#ifndef ALLRANKS_SIMCUDA_CLIENT_CONNECTION_HPP_
#define ALLRANKS_SIMCUDA_CLIENT_CONNECTION_HPP_

#include <cuda.h>

#include "wire/message.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::client {

class Connection {
 public:
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The calling thread's; null when there is none to be had, and then `refusal` is what every call answers.
  static Connection* of_thread(CUresult& refusal);

  // Another one of the process, for the caller to keep; null when there is none to be had.
  static Connection* open(wire::Purpose purpose);

  // Sends `out`, and receives the answer into `in`; gives the broker what it asks for in between. False: it is gone.
  bool ask();
  // Receives into `in` what is not about memory; gives the broker what it asks for in between. False: it is gone.
  bool listen(wire::Kind& kind);
  bool say(std::uint32_t word);
  // To be returned by a call that the broker did not answer.
  static CUresult lost();
  // After a fork, in the child: the descriptor is closed, and never again by this object.
  void abandon();

  wire::Writer out;
  wire::Reader in;

 private:
  bool give_memory();
  bool set_memory();
  bool unmap_memory();

  int socket_;
};

// True in a child forked after the driver was first called.
bool forked();

}  // namespace allranks::sim::client

#endif  // ALLRANKS_SIMCUDA_CLIENT_CONNECTION_HPP_
