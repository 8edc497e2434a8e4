#include "driver/job_comment.h"

#include <utility>

namespace ms::driver {

JobComment::JobComment(slurm::CommandOptions options, std::uint32_t job)
    : slurm_(std::move(options)), job_(job), thread_("ms-comment") {}

void JobComment::set(std::string text) {
  {
    const std::lock_guard lock(mutex_);
    next_ = std::move(text);
  }
  thread_.post([this](const std::stop_token&) {
    std::string newest;
    {
      const std::lock_guard lock(mutex_);
      newest = std::exchange(next_, {});
    }
    if (!newest.empty()) slurm_.set_comment(job_, newest);
  });
}

}  // namespace ms::driver
