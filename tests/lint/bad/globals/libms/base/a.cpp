// Every line with "bad" in its name is a planted mistake; everything else here is right and must not be reported.
#include <atomic>
#define MS_FINE(x) \
  static int x;

namespace ms {
namespace {
int bad_plain;
std::atomic<int> bad_atomic{0};
static std::vector<std::map<int, int>> bad_vector = {{}, {}};
const char* bad_pointer = "text";
thread_local int bad_thread;
bool (*bad_function_pointer)(int) = nullptr;
bool (*const kFineFunctionPointer)(int) = nullptr;
int bad_array[2] = {1, 2};
extern int bad_extern;
constexpr int kFine[] = {1, 2, 3};
const std::vector<const char*> kAlsoFine{"int x = 3;"};
const char* const kFinePointer = "{";
inline constexpr std::array<int, 2> kRows{{1, 2}};
static constexpr auto kFunction = [](int a) { return a; };
}  // namespace

struct Row {
  int member = 3;
  std::vector<int> other{1, 2};
  static int bad_member;
  static inline std::mutex bad_mutex;
  static constexpr int kLimit = 4;
  static Row make(int n);
  static Row made(int n) { return {n}; }
  Row& operator=(const Row&) = default;
  bool operator==(const Row&) const = default;
  friend bool operator<(const Row& a, const Row& b) { return a.member < b.member; }
};
enum class Color : int { red = 0, green };
using Table = std::map<int, int>;
template <class T>
T twice(T value) {
  static T bad_local{};
  static const T kConstant = value;
  thread_local std::vector<int> bad_scratch;
  static std::mutex allowed;
  T local = value;
  return local + local;
}
int function(int a = 3, std::vector<int> b = {1});
static int hidden(int a);
Row::Row(int n) : member{n}, other{1} { member = n; }
Row::Row(long n) noexcept : member(static_cast<int>(n)), other{[&] { int x = 3; return x; }()} { int y; }
int bad_after;
auto lambda_user() -> int {
  auto f = [&](int x) { return x; };
  return f(1);
}
extern "C" {
int bad_in_c;
void callback(void);
}
}  // namespace ms
