/* coef_table.h -- the names of the Newton-Schulz coefficient tables, as a list for those who offer a choice.
 */
#ifndef PL_MATH_COEF_TABLE_H
#define PL_MATH_COEF_TABLE_H

extern const char *const pl_coef_table_names[]; /* ended by NULL; polar_coef_table has the rows */

#endif
