#include "broker/guest_functions.hpp"

#include "wire/message.hpp"
#include "wire/protocol.hpp"

namespace allranks::sim::broker {

void GuestFunctions::call(const HostFunction& function) {
  auto pending = std::make_shared<Pending>();
  pending->function = function;
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    pending_.push_back(pending);
    ++more_;
  }
  changed_.notify_one();
  turnstile_.wait({.ready = [&] { return pending->done.load(); },
                   .key = pending.get(),
                   .call = "host function",
                   .object = "a function of the program that a stream calls"});
}

std::shared_ptr<GuestFunctions::Pending> GuestFunctions::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !pending_.empty(); });
  if (ended_) return nullptr;
  std::shared_ptr<Pending> pending = std::move(pending_.front());
  pending_.pop_front();
  return pending;
}

bool GuestFunctions::pass_on(const Pending& pending, int socket) {
  wire::Writer out;
  wire::Reader in;
  memory_.deliver(socket);  // what the stream wrote before
  out.put(wire::Kind::kCallFunction);
  out.put(pending.function);
  const bool begun = out.send(socket) && in.receive(socket);
  --more_;
  ++progress_;
  const bool ended = begun && in.receive(socket);
  ++progress_;
  return ended;
}

void GuestFunctions::serve(int socket) {
  while (const std::shared_ptr<Pending> pending = next()) {
    const bool there = pass_on(*pending, socket);
    {
      const Turnstile::Turn turn(turnstile_);
      pending->done = true;
      turnstile_.notify(pending.get());
    }
    if (!there) end();
  }
}

void GuestFunctions::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    more_ = 0;
  }
  changed_.notify_all();
}

}  // namespace allranks::sim::broker
