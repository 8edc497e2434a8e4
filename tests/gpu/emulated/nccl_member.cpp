#include "nccl_member.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <utility>

#include "nccl_faults.h"
#include "nccl_reduce.h"

namespace ms::emulated::nccl {
namespace {

constexpr const char* kKindNames[] = {"all_reduce", "reduce_scatter", "all_gather",
                                      "broadcast",  "send or recv",   "exchange"};

struct Hello {
  std::int32_t rank, size, world_rank;
};

Failure lost(int rank) { return {ncclRemoteError, "rank " + std::to_string(rank) + " closed its connection"}; }

sockaddr_un address_of(const std::string& name, socklen_t* size) {  // an abstract address: it leaves no file behind
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// Listeners of the unique ids that this process created, until their rank 0 takes them.
struct Listeners {
  std::mutex mutex;
  std::map<std::string, int> sockets;
  std::uint64_t made = 0;

  static Listeners& get() {
    static auto* listeners = new Listeners;
    return *listeners;
  }
  int take(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto node = sockets.extract(name);
    return node.empty() ? -1 : node.mapped();
  }
};

}  // namespace

std::string listen() {
  Listeners& listeners = Listeners::get();
  const std::lock_guard lock(listeners.mutex);
  std::string name = "ms-emulated-nccl-" + std::to_string(::getpid()) + "-" + std::to_string(++listeners.made) + "-" +
                     std::to_string(std::random_device()());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size;
  const sockaddr_un address = address_of(name, &size);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(socket, SOMAXCONN) != 0) {
    ::close(socket);
    return {};
  }
  listeners.sockets[name] = socket;
  return name;
}

std::string Header::text() const {
  return std::string(kKindNames[static_cast<int>(kind)]) + " " + std::to_string(sequence) + " of " +
         std::to_string(count) + " of type " + std::to_string(type) + ", root " + std::to_string(root);
}

Member::Member(int rank, int size, bool blocks)
    : rank_(rank),
      blocks_(blocks),
      sockets_(static_cast<std::size_t>(size), -1),
      abort_event_(::eventfd(0, EFD_CLOEXEC)) {}
Member::~Member() {
  for (const int socket : sockets_) {
    if (socket >= 0) ::close(socket);
  }
  if (listener_ >= 0) ::close(listener_);
  if (newcomer_ >= 0) ::close(newcomer_);
  ::close(abort_event_);
}
ncclResult_t Member::state() const {
  const std::lock_guard lock(mutex_);
  if (error_ != ncclSuccess) return error_;
  return !joined_ || (finalizes_ && pending_ > 0) ? ncclInProgress : ncclSuccess;
}
const char* Member::error_text() const {
  const std::lock_guard lock(mutex_);
  return error_ == ncclSuccess ? nullptr : error_text_.c_str();
}
void Member::join(const std::string& name) {
  try {
    if (over_network() && std::getenv("MS_EMULATED_NCCL_NO_NET") != nullptr)
      throw Failure{ncclSystemError, "no network device, and P2P and SHM are disabled"};
    if (rank_ == 0) {
      await_members(name);
    } else {
      join_hub(name);
    }
    const std::lock_guard lock(mutex_);
    joined_ = true;
  } catch (const Failure& failure) { fail(failure); }
}
void Member::join_in_background(const std::string& name) {
  joiner_ = std::thread([this, name] { join(name); });
}
bool Member::connects() { return !std::exchange(connected_, true); }
void Member::connect(bool hangs) {
  try {
    if (hangs) hang();
    meet_peer();
  } catch (const Failure& failure) { fail(failure); }
}
void Member::meet_peer() {
  const int peer = 1 - rank_, socket = rank_ == 0 ? sockets_[1] : sockets_[0];
  char word = 0;
  send(socket, peer, &word, 1);
  receive(socket, peer, &word, 1);
}
void Member::connect_in_background(const std::function<void()>& then) {
  if (joiner_.joinable()) joiner_.join();
  {
    const std::lock_guard lock(mutex_);
    joined_ = false;
  }
  joiner_ = std::thread([this, then] {
    try {
      meet_peer();
      then();
      const std::lock_guard lock(mutex_);
      joined_ = true;
    } catch (const Failure& failure) { fail(failure); }
  });
}
std::uint64_t Member::begin() {
  const std::lock_guard lock(mutex_);
  ++pending_;
  return sequence_++;
}
void Member::run(const Operation& operation) {
  {
    const std::lock_guard lock(operation_);
    try {
      if (error_text() != nullptr) stay();
      check();
      if (operation.hangs) hang();
      if (operation.header.kind == Kind::exchange) {
        rank_ == 0 ? lead_exchange(operation) : follow_exchange(operation);
      } else {
        rank_ == 0 ? lead(operation) : follow(operation);
      }
    } catch (const Failure& failure) {
      fail(failure);
      stay();
    }
  }
  const std::lock_guard lock(mutex_);
  --pending_;
  changed_.notify_all();
}
void Member::finalize() {
  std::unique_lock lock(mutex_);
  finalizes_ = true;
  if (blocks_) changed_.wait(lock, [&] { return pending_ == 0 || error_ != ncclSuccess; });
}
void Member::leave() {
  bool joined;
  {
    const std::lock_guard lock(mutex_);
    joined = joined_;
  }
  if (!joined) return abort();
  if (joiner_.joinable()) joiner_.join();
}
void Member::revoke() {
  aborted_ = true;
  ::eventfd_write(abort_event_, 1);  // stays readable
}
void Member::abort() {
  revoke();
  if (joiner_.joinable()) joiner_.join();
  const std::lock_guard lock(operation_);  // no operation writes to memory any more
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  shut();
}
void Member::await_members(const std::string& name) {
  listener_ = Listeners::get().take(name);
  if (listener_ < 0) throw Failure{ncclInvalidUsage, "the unique id was made by another process, or used before"};
  for (int missing = size() - 1; missing > 0; --missing) {
    std::vector<pollfd> some{{listener_, POLLIN, 0}};
    for (const int socket : sockets_) some.push_back({socket, 0, 0});  // poll() ignores negative ones
    poll_on(some);
    for (int rank = 0; rank < size(); ++rank) {
      if (some[static_cast<std::size_t>(rank) + 1].revents != 0) throw lost(rank);
    }
    newcomer_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (newcomer_ < 0) throw Failure{ncclSystemError, std::strerror(errno)};
    Hello hello{};
    receive(newcomer_, -1, &hello, sizeof hello);
    if (hello.size != size() || hello.rank <= 0 || hello.rank >= size() || socket_of(hello.rank) >= 0) {
      const Verdict no = Verdict::disagreed;
      send(newcomer_, hello.rank, &no, sizeof no);
      tell(no);
      throw Failure{ncclInvalidUsage, "rank " + std::to_string(hello.rank) + " of " + std::to_string(hello.size) +
                                          " comes to " + std::to_string(size()) + " ranks, or comes twice"};
    }
    sockets_[static_cast<std::size_t>(hello.rank)] = std::exchange(newcomer_, -1);
    // Transfers are between two.
    transfer_rate_ = rate_between(own_world_rank(), hello.world_rank);
    lies_ = {lies(own_world_rank()), lies(hello.world_rank)};
  }
  ::close(std::exchange(listener_, -1));
  tell(Verdict::agreed);
}
void Member::join_hub(const std::string& name) {
  sockets_[0] = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t address_size;
  const sockaddr_un address = address_of(name, &address_size);
  if (::connect(sockets_[0], reinterpret_cast<const sockaddr*>(&address), address_size) != 0)
    throw Failure{ncclRemoteError, std::string("rank 0 cannot be reached: ") + std::strerror(errno)};
  const Hello hello{rank_, size(), own_world_rank()};
  send(sockets_[0], 0, &hello, sizeof hello);
  obey("the members do not agree on how many they are");
}
void Member::lead(const Operation& operation) {
  const Header& header = operation.header;
  meet(header);
  const std::size_t part = header.count * size_of(header.type), ranks = sockets_.size();
  const bool scatters = header.kind == Kind::reduce_scatter, reduces = scatters || header.kind == Kind::all_reduce;
  std::vector<Bytes> inputs(ranks);
  for (int rank = 0; rank < size(); ++rank) {
    if (header.has_root() && rank != header.root) continue;
    Bytes& input = inputs[static_cast<std::size_t>(rank)];
    input.resize(scatters ? ranks * part : part);
    if (rank == 0) {
      std::memcpy(input.data(), operation.in, input.size());
    } else {
      receive(socket_of(rank), rank, input.data(), input.size());
    }
  }
  if (header.kind == Kind::transfer && lies_[static_cast<std::size_t>(header.root)])
    inputs[static_cast<std::size_t>(header.root)][0] ^= std::byte{1};
  if (header.kind == Kind::transfer && transfer_rate_ > 0) linger(static_cast<double>(part) / transfer_rate_);
  Bytes whole;
  if (reduces) {
    whole = reduce(inputs, header.type, header.reduce);
  } else {
    for (const Bytes& input : inputs) whole.insert(whole.end(), input.begin(), input.end());
  }
  for (int rank = 0; rank < size(); ++rank) {
    const std::byte* at = whole.data() + (scatters ? static_cast<std::size_t>(rank) * part : 0);
    const std::size_t bytes = scatters ? part : whole.size();
    if (rank == 0 && operation.out != nullptr) std::memcpy(operation.out, at, bytes);
    if (rank != 0 && !(header.has_root() && rank == header.root)) send(socket_of(rank), rank, at, bytes);
  }
}
void Member::follow(const Operation& operation) {
  const Header& header = operation.header;
  const std::size_t part = header.count * size_of(header.type), all = sockets_.size() * part;
  send(sockets_[0], 0, &header, sizeof header);
  obey("the members do not agree on " + header.text());
  const bool is_root = header.root == rank_;
  if (!header.has_root() || is_root)
    send(sockets_[0], 0, operation.in, header.kind == Kind::reduce_scatter ? all : part);
  if (!header.has_root() || !is_root) {
    receive(sockets_[0], 0, operation.out, header.kind == Kind::all_gather ? all : part);
  } else if (operation.out != nullptr) {
    std::memmove(operation.out, operation.in, part);
  }
}
void Member::meet(const Header& mine) {
  std::vector<bool> here(sockets_.size());
  for (int missing = size() - 1; missing > 0;) {
    std::vector<pollfd> some;
    for (std::size_t i = 0; i < here.size(); ++i)
      some.push_back({sockets_[i], static_cast<std::int16_t>(here[i] ? 0 : POLLIN), 0});
    poll_on(some);
    for (std::size_t i = 0; i < here.size(); ++i) {
      if (some[i].revents == 0) continue;
      const int rank = static_cast<int>(i);
      if (here[i]) throw lost(rank);
      Header theirs;
      receive(sockets_[i], rank, &theirs, sizeof theirs);
      if (theirs != mine) {
        tell(Verdict::disagreed);
        throw Failure{ncclInvalidUsage,
                      "rank 0 is in " + mine.text() + ", rank " + std::to_string(rank) + " in " + theirs.text()};
      }
      here[i] = true;
      --missing;
    }
  }
  tell(Verdict::agreed);
}
void Member::tell(Verdict verdict) {
  for (int rank = 1; rank < size(); ++rank) {
    if (socket_of(rank) < 0) continue;
    try {
      send(socket_of(rank), rank, &verdict, sizeof verdict);
    } catch (const Failure&) {
      if (verdict == Verdict::agreed) throw;
    }
  }
}
void Member::obey(const std::string& otherwise) {
  Verdict verdict;
  receive(sockets_[0], 0, &verdict, sizeof verdict);
  if (verdict != Verdict::agreed) throw Failure{ncclInvalidUsage, otherwise};
}
template <class Step>
void Member::move(int socket, int rank, std::size_t size, std::int16_t event, const Step& step) const {
  for (std::size_t done = 0; done < size;) {
    const ssize_t moved = step(done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
    } else if (moved == 0 || (errno != EAGAIN && errno != EINTR)) {
      throw lost(rank);
    } else {
      std::vector<pollfd> some{{socket, event, 0}};
      poll_on(some);
    }
    check();
  }
}
void Member::send(int socket, int rank, const void* data, std::size_t size) const {
  const auto* at = static_cast<const std::byte*>(data);
  move(socket, rank, size, POLLOUT,
       [&](std::size_t done) { return ::send(socket, at + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL); });
}
void Member::receive(int socket, int rank, void* data, std::size_t size) const {
  auto* at = static_cast<std::byte*>(data);
  move(socket, rank, size, POLLIN,
       [&](std::size_t done) { return ::recv(socket, at + done, size - done, MSG_DONTWAIT); });
}
void Member::poll_on(std::vector<pollfd>& some) const {
  some.push_back({abort_event_, POLLIN, 0});
  while (::poll(some.data(), some.size(), -1) < 0 && errno == EINTR) {}
  some.pop_back();
  check();
}
void Member::linger(double seconds) const {
  pollfd abort_event{abort_event_, POLLIN, 0};
  ::poll(&abort_event, 1, static_cast<int>(std::ceil(seconds * 1e3)));
  check();
}
void Member::hang() const {
  std::vector<pollfd> some;
  for (const int socket : sockets_) some.push_back({socket, 0, 0});
  poll_on(some);
  throw Failure{ncclRemoteError, "a rank closed its connection"};
}
void Member::stay() const {
  pollfd abort_event{abort_event_, POLLIN, 0};
  while (!aborted_) ::poll(&abort_event, 1, -1);
}
void Member::fail(const Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (error_ == ncclSuccess) error_text_ = failure.text, error_ = failure.code;
    changed_.notify_all();
  }
  if (rank_ == 0 && failure.code != ncclInvalidUsage) shut();  // the others learn of each other only through rank 0
}
void Member::shut() {
  for (const int socket : sockets_) {
    if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  }
}

}  // namespace ms::emulated::nccl
