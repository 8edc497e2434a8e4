#include "ms_loader.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/handle.h"
#include "data/batch_ring.h"
#include "data/chain.h"

struct ms_loader_reader {
  ms_loader_reader(const ms::data::RingShape& shape, std::string_view address, int pid)
      : server(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))), ring(shape, address) {}

  ms::UniqueFd server;
  ms::data::BatchRing ring;
  int number = 0, part = 0;
  std::uint64_t batch = 0;  // the one that is read next
  bool holds = false;       // the one before
};

namespace {

void tell(char* error, const std::string& text) {
  const std::size_t size = std::min<std::size_t>(text.size(), MS_LOADER_TEXT - 1);
  std::memcpy(error, text.data(), size);
  error[size] = '\0';
}

void tell(char* error, const ms::Error& thrown) {
  tell(error, thrown.hint().empty() ? thrown.message() : thrown.message() + "; " + thrown.hint());
}

// Calls what may throw, as C cannot.
template <class Call>
std::invoke_result_t<Call> guarded(char* error, std::invoke_result_t<Call> failed, const Call& call) {
  try {
    return call();
  } catch (const ms::Error& thrown) { tell(error, thrown); } catch (const std::exception& thrown) {
    tell(error, thrown.what());
  }
  return failed;
}

}  // namespace

ms_loader_reader* ms_loader_open(const char* address, const ms_loader_shape* shape, int reader, int part, char* error) {
  return guarded(error, static_cast<ms_loader_reader*>(nullptr), [&] {
    const std::string_view text(address);
    int pid = 0;
    const auto number = std::from_chars(text.data(), text.data() + text.size(), pid);
    if (number.ec != std::errc{} || std::ranges::count(text, ' ') != 2)
      throw std::invalid_argument("no address of ms-data serve");
    if (shape->rows < 1 || shape->seq < 1 || reader < 0 || reader >= shape->readers || part < 0 || part >= shape->parts)
      throw std::invalid_argument("a reader or a part that ms-data serve does not have");
    const ms::data::RingShape ring{.readers = shape->readers,
                                   .parts = shape->parts,
                                   .rows = shape->rows,
                                   .seq = shape->seq,
                                   .has_starts = shape->has_starts != 0};
    auto opened = std::make_unique<ms_loader_reader>(ring, text, pid);
    opened->number = reader;
    opened->part = part;
    return opened.release();
  });
}

int ms_loader_next_batch(ms_loader_reader* reader, int64_t step, double patience_s, ms_loader_batch* batch,
                         char* error) {
  return guarded(error, -1, [&] {
    ms::data::BatchRing& ring = reader->ring;
    if (reader->holds) ring.release(reader->number, reader->batch - 1);
    reader->holds = false;
    const std::chrono::duration<double> patience(patience_s);
    if (!ring.wait_published(reader->batch, std::chrono::ceil<ms::data::BatchRing::Patience>(patience))) {
      pollfd server{reader->server.get(), POLLIN, 0};
      if (!reader->server || ::poll(&server, 1, 0) > 0)
        throw std::runtime_error("ms-data serve of this node has ended");
      return 0;
    }
    const ms::data::BatchRing::Label& label = ring.label(reader->batch);
    if (label.id != ms::data::BatchId{.step = step})
      throw std::invalid_argument(fmt::format("step {} is not the next one, which is {}", step, label.id.step));
    const ms::data::BatchRing::Part part = ring.part(reader->batch++, reader->part);
    reader->holds = true;
    *batch = {.tokens = part.rows.data(),
              .starts = part.starts.empty() ? nullptr : part.starts.data(),
              .rows = label.rows,
              .num_targets = label.num_targets,
              .digest = label.digest};
    return 1;
  });
}

void ms_loader_close(ms_loader_reader* reader) { delete reader; }

void ms_loader_extend_chain(char chain[MS_LOADER_CHAIN], uint64_t digest) {
  const std::string next = ms::data::extend_chain(std::string_view(chain, MS_LOADER_CHAIN - 1), digest);
  std::memcpy(chain, next.data(), MS_LOADER_CHAIN - 1);
}
