#include "driver/job_comment.h"

#include <utility>

#include "base/text.h"

namespace ms::driver {

JobComment::JobComment(slurm::CommandOptions options, std::uint32_t job)
    : slurm_(std::move(options)), job_(job), thread_("ms-comment") {}

void JobComment::set(std::string text, bool replaces) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(text);
  }
  thread_.post([this, replaces](const std::stop_token&) {
    std::string newest;
    {
      const std::lock_guard lock(mutex_);
      newest = std::exchange(next_, {});
    }
    if (newest.empty()) return;
    if (!replaces) {
      const std::string there(trim(slurm_.comment_of(job_)));
      if (!there.empty() && there != "(null)" && !there.starts_with(kOurs)) return;
    }
    slurm_.set_comment(job_, newest);
  });
}

}  // namespace ms::driver
