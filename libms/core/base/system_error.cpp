#include "base/system_error.h"

#include <cerrno>
#include <utility>

namespace ms {

Error system_error(std::string kind, Blame blame, std::string message, int err, std::string hint) {
  struct Limit {
    int err;
    Blame blame;
    const char* hint;
  };
  constexpr Limit kLimits[] = {
      {EMFILE, Blame::user,
       "'ulimit -n' limits the files that a process has open; fewer ranks in a process need fewer"},
      {ENFILE, Blame::node, "fs.file-max limits the files that are open on the node"},
      {ENOMEM, Blame::user, "'ulimit -v' and memory.max of the control group limit the memory of a process"},
  };
  for (const Limit& limit : kLimits) {
    if (limit.err == err) return {std::move(kind), limit.blame, std::move(message), limit.hint};
  }
  return {std::move(kind), blame, std::move(message), std::move(hint)};
}

}  // namespace ms
