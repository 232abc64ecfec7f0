/* rule_names.h -- the one list of rules and that of scales, for tables of constants; elsewhere
 * polar_rule_name. And which preconditioners are of one family.
 */
#ifndef PL_OPTIM_RULE_NAMES_H
#define PL_OPTIM_RULE_NAMES_H

#include "polar/optim.h"

/* in the order of polar_rule_name, ended by NULL */
extern const char *const pl_rule_names[];
/* in the order of polar_scale, ended by NULL */
extern const char *const pl_scale_names[];

/* a preconditioner with Kronecker factors; one that is Adam in their eigenvectors */
static inline int pl_precondition_kron(polar_precondition kind)
{
    return kind >= POLAR_PRECONDITION_KRON && kind <= POLAR_PRECONDITION_KL_SOAP;
}
static inline int pl_precondition_soap(polar_precondition kind)
{
    return kind >= POLAR_PRECONDITION_SOAP && kind <= POLAR_PRECONDITION_KL_SOAP;
}

#endif
