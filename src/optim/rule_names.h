/* rule_names.h -- the one list of rules and that of scales, for tables of constants; elsewhere
 * polar_rule_name.
 */
#ifndef PL_OPTIM_RULE_NAMES_H
#define PL_OPTIM_RULE_NAMES_H

/* in the order of polar_rule_name, ended by NULL */
extern const char *const pl_rule_names[];
/* in the order of polar_scale, ended by NULL */
extern const char *const pl_scale_names[];

#endif
