// Reads whether a link failed, or a peer behind it.
#include <algorithm>

#include "driver/judge.h"

namespace ms::driver {
namespace {

// Tells whether InfiniBand says that a peer did not answer.
bool is_of_link(const SaidLine& line) {
  return line.known->cause == "ib_completion" || line.known->cause == "ib_retry";
}

}  // namespace

const SaidLine* error_behind(const AttemptEvidence& e, const SaidLine& link) {
  constexpr double kSoonS = 60;
  if (!is_of_link(link)) return nullptr;
  const auto is_error = [&](const SaidLine& line) {
    const auto tells_of_others = [&](const SaidLine& other) {
      return other.rank == line.rank && (is_of_link(other) || other.known->says == Says::effect);
    };
    return line.known->says == Says::exception && !line.outlived && line.at_s <= link.at_s + kSoonS &&
           std::ranges::none_of(e.lines, tells_of_others);
  };
  const auto found = std::ranges::find_if(e.lines, is_error);
  return found == e.lines.end() ? nullptr : &*found;
}

}  // namespace ms::driver
