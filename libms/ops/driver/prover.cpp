#include "driver/prover.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace ms::driver {

Prover::Prover(const Credentials& credentials)
    : credentials_(credentials), ready_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), thread_("ms-prover") {
  if (!ready_) throw Error("driver.socket", Blame::node, fmt::format("no eventfd: {}", errno_text(errno)));
}

void Prover::ask(Question question) {
  {
    const std::lock_guard lock(mutex_);
    open_.insert(question.id);
  }
  thread_.post([this, question = std::move(question)](const std::stop_token& stop) {
    {
      const std::lock_guard lock(mutex_);
      if (stop.stop_requested() || !open_.contains(question.id)) return;
    }
    Answer given = answer(question);
    const std::lock_guard lock(mutex_);
    if (open_.erase(question.id) > 0) answers_.push_back(std::move(given));
    eventfd_write(ready_.get(), 1);
  });
}

// Never throws: a credential may be anybody's, and what MUNGE refuses is an answer, too.
Prover::Answer Prover::answer(const Question& question) const {
  Answer given{.id = question.id, .reply = {}, .why = {}};
  try {
    const std::optional<std::string> sealed = credentials_.open(question.credential, given.why);
    if (!sealed) return given;
    given.why = "a credential that is not for this connection";
    if (*sealed == question.expected) given.reply = credentials_.seal(question.reply);
  } catch (const Error& error) { given.why = error.message(); }
  return given;
}

void Prover::forget(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  open_.erase(id);
}

std::vector<Prover::Answer> Prover::take() {
  eventfd_t count = 0;
  eventfd_read(ready_.get(), &count);
  const std::lock_guard lock(mutex_);
  return std::exchange(answers_, {});
}

}  // namespace ms::driver
