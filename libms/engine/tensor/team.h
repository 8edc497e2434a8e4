// The threads that share the work of an op on the CPU. Every thread that runs ops has a team of its own: itself, number
// 0, and helpers, which wait for the next op.
//
// Whoever waits spins for a short time and then sleeps. On an idle machine the next op begins within that time. On a
// loaded one a thread that goes on spinning uses up the time slices of those that it waits for. And no op waits for a
// helper that has not begun: those that have take its part too.
#pragma once

#include <cstdint>

namespace ms::tensor {

inline constexpr int kMaxThreads = 1024;

// Threads that an op on the calling thread may use, at most kMaxThreads; 1 until they are set.
int team_threads();
void set_team_threads(int threads);

// Indexes that a thread takes at a time where each is about as much work: a few parts a thread, so that one that is
// late leaves some to the others.
std::int64_t even_part(std::int64_t count);

using TeamBody = void (*)(void* context, std::int64_t begin, std::int64_t end, int thread);
// Calls body(context, begin, end, thread) for ranges that cover [0, count), and returns when all calls have. A thread
// takes `part` indexes at a time, first of its own share, then of the others'. Numbers of threads are below
// team_threads() and below the number of parts. An exception of a body is rethrown. Called by a body, it does all by
// itself as thread 0.
void share_work(std::int64_t count, std::int64_t part, TeamBody body, void* context);

// The same with a callable body(begin, end, thread). Static, as sources of every instruction set include it.
template <class Body>
static inline void share_work(std::int64_t count, std::int64_t part, const Body& body) {
  const auto call = [](void* context, std::int64_t begin, std::int64_t end, int thread) {
    (*static_cast<const Body*>(context))(begin, end, thread);
  };
  share_work(count, part, call, const_cast<Body*>(&body));
}

}  // namespace ms::tensor
