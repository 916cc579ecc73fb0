// A whole call on its way: all its slots, on the client's side and on the broker's.
#ifndef ALLRANKS_SIMCUDA_WIRE_CALLS_HPP_
#define ALLRANKS_SIMCUDA_WIRE_CALLS_HPP_

#include <tuple>
#include <utility>

#include "slots.hpp"

namespace allranks::sim::wire {

template <auto Function, typename Type = decltype(Function)>
struct RemoteCall;

template <auto Function, typename... Types>
struct RemoteCall<Function, CUresult (*)(Types...)> {
  using Arguments = std::tuple<Types...>;
  template <std::size_t Index>
  using shape = decltype(shape_of<Function, Index, std::tuple_element_t<Index, Arguments>>());

  // False: some argument is of no known shape.
  static constexpr bool kCarried = []<std::size_t... Index>(std::index_sequence<Index...>) {
    return (!std::is_same_v<shape<Index>, Unknown> && ...);
  }(std::index_sequence_for<Types...>{});

  // True: a stream may call a function of the client later.
  static constexpr bool kCallsBack = []<std::size_t... Index>(std::index_sequence<Index...>) {
    return (std::is_same_v<shape<Index>, wire::Function> || ...);
  }(std::index_sequence_for<Types...>{});

  template <std::size_t... Index>
  static auto slots_of(std::index_sequence<Index...>)
      -> std::tuple<Slot<std::tuple_element_t<Index, Arguments>, shape<Index>, Index>...>;
  using Slots = decltype(slots_of(std::index_sequence_for<Types...>{}));

  static bool put(Writer& out, const Arguments& all) {
    return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      return (std::tuple_element_t<Index, Slots>::put(out, all) && ...);
    }(std::index_sequence_for<Types...>{});
  }

  static bool take_back(Reader& in, const Arguments& all) {
    return [&]<std::size_t... Index>(std::index_sequence<Index...>) {
      return (std::tuple_element_t<Index, Slots>::take_back(in, all) && ...);
    }(std::index_sequence_for<Types...>{});
  }

  // Carries a call out on this side. False: the message is none of this call.
  static bool serve(Reader& in, Writer& out, CUresult& result) {
    Slots slots;
    return std::apply(
        [&](auto&... slot) {
          if (!(slot.take(in) && ...)) return false;
          const Arguments all{slot.argument()...};
          if (!(slot.fits(all) && ...)) return false;
          result = std::apply(Function, all);
          out.put(result);
          (slot.put_back(out, result, all), ...);
          return true;
        },
        slots);
  }
};

}  // namespace allranks::sim::wire

#endif  // ALLRANKS_SIMCUDA_WIRE_CALLS_HPP_
