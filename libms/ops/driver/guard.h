// Keeps the driver itself alive: it runs in a child, and one that is killed is started again and goes on with what
// runs.
#pragma once

#include <functional>

namespace ms::driver {

// Runs `work` in a child process with the signals of `drive` blocked, and passes on to it what this process is sent.
// A child that a signal ended is replaced, at most kMostDeaths times. Returns the exit status. Must be called while
// this process has one thread.
inline constexpr int kMostDeaths = 20;
int guarded(const std::function<int(int signals)>& work);

}  // namespace ms::driver
