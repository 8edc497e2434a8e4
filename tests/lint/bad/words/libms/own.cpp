// What the crew computes: the product.
// The dot product of two rows.
int crew = 0;
