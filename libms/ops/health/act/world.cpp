#include "health/act/world.h"

#include "base/text.h"
#include "health/act/decide.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxLine = 600;

}  // namespace

void World::say(log::Level level, std::string_view text) const { log(level, plain_text(text, kMaxLine)); }

bool World::attempt(std::string_view what, const std::function<void()>& action) const {
  try {
    action();
    return true;
  } catch (const std::exception& error) {  // the flow goes on without it: first do no harm
    say(log::Level::warn, fmt::format("{}: {}", what, error.what()));
    return false;
  }
}

}  // namespace ms::health
