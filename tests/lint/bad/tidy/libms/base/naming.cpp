namespace ms {
constexpr int limit = 3;
class bad_type {
 public:
  int BadMethod(int BadParameter) const { return BadParameter + member; }
  int good_method() const { return member; }

 private:
  int member = 0;
};
}  // namespace ms
