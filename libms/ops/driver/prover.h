// Opens and seals credentials on a thread of its own: a munged that hangs must not hang the driver. For one thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/handle.h"
#include "base/job_thread.h"
#include "driver/credential.h"

namespace ms::driver {

class Prover {
 public:
  struct Question {
    std::uint64_t id = 0;
    std::string credential;
    std::string expected;  // what it must seal
    std::string reply;     // is sealed then
  };
  struct Answer {
    std::uint64_t id = 0;
    std::optional<std::string> reply;  // a credential; nullopt: the other end has not proved itself
    std::string why;
  };

  // `credentials` outlives it. Error("driver.socket", node).
  explicit Prover(const Credentials& credentials);

  void ask(Question question);
  // Nobody waits for the answer any more.
  void forget(std::uint64_t id);
  // Readable while there are answers.
  int fd() const { return ready_.get(); }
  std::vector<Answer> take();

 private:
  Answer answer(const Question& question) const;

  const Credentials& credentials_;
  UniqueFd ready_;
  std::mutex mutex_;  // guards open_ and answers_
  std::set<std::uint64_t> open_;
  std::vector<Answer> answers_;
  JobThread thread_;  // last: it uses the rest
};

}  // namespace ms::driver
