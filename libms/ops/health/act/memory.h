// State, history and spool as the flow uses them: nothing here ever fails it. What could not be read is empty, what
// could not be written is said in the log.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "health/act/state.h"
#include "health/act/world.h"
#include "health/policy.h"

namespace ms::health {

class Memory {
 public:
  Memory(const Policy& policy, const World& world, std::string node);

  State state() const;
  bool change(const std::function<void(State&)>& change) const;  // false: it was not kept

  enum class Tell { always, hourly };  // hourly: not again within an hour of the same event and code
  struct Happening {
    std::string event;
    std::string code;
    std::string message;
    std::uint32_t job_id = 0;
    int strikes = 0;
    std::string about = {};  // the message begins with it: hourly is then of what begins so
  };
  void remember(const Happening& happening, Tell tell) const;            // into the history
  void remember_and_spool(const Happening& happening, Tell tell) const;  // and for ms-diag notify
  // When this last happened; nullopt: not that is known.
  std::optional<double> last_wall_s(std::string_view event, std::string_view code,
                                    std::string_view about = {}) const;  // empty code: any

 private:
  // Has the site told of what counts there, in a process of its own: shared storage may hang.
  void share() const;
  bool to_be_told(const Happening& happening, Tell tell) const;
  const Policy& policy_;
  const World& world_;
  std::string node_;
  std::optional<StateDirectory> directory_;  // empty: it cannot be used
};

}  // namespace ms::health
